-- Take what names a session out of a stream that many sessions share: the index, wake-ups, or what was set aside.
--
-- KEYS  1 stream
-- ARGV  1 session id · 2 where to begin · 3 how many entries to look at
--
-- Gives where the next step begins, or "" at the end of the stream.

local page = redis.call('XRANGE', KEYS[1], ARGV[2], '+', 'COUNT', ARGV[3])
local ids = {}
for _, entry in ipairs(page) do
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 's' and entry[2][i + 1] == ARGV[1] then
      ids[#ids + 1] = entry[1]
      break
    end
  end
end
if #ids > 0 then redis.call('XDEL', KEYS[1], unpack(ids)) end
return #page == tonumber(ARGV[3]) and '(' .. page[#page][1] or ''
