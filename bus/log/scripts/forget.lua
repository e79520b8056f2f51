-- Take what names a session out of streams that many sessions share: the index, wake-ups, dead letters, or what was set
-- aside.
--
-- KEYS  streams
-- ARGV  1 session id · 2 how many entries of each to look at · then for each stream the first and the last id to look at
--
-- Gives for each stream where the next step begins, or "" at its end.

local most, places = tonumber(ARGV[2]), {}
for at, stream in ipairs(KEYS) do
  local page = redis.call('XRANGE', stream, ARGV[2 * at + 1], ARGV[2 * at + 2], 'COUNT', most)
  local ids = {}
  for _, entry in ipairs(page) do
    for i = 1, #entry[2], 2 do
      if entry[2][i] == 's' and entry[2][i + 1] == ARGV[1] then
        ids[#ids + 1] = entry[1]
        break
      end
    end
  end
  if #ids > 0 then redis.call('XDEL', stream, unpack(ids)) end
  places[at] = #page == most and '(' .. page[#page][1] or ''
end
return places
