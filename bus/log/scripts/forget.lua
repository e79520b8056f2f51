-- Delete the entries that name a session from shared streams: the index, wake-ups, dead letters or the quarantine.
--
-- KEYS  streams
-- ARGV  1 session id · 2 most entries to check in each stream · then for each stream the first and the last id to check
--
-- Returns for each stream the first id to check in the next step, or "" if nothing is left to check.

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
