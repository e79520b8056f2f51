-- Return the size of a stream's first entry after a position, without the entry itself. Read-only.
--
-- KEYS  1 stream
-- ARGV  1 position
--
-- Returns { the entry's position, bytes of its field names and values }; an empty list if there is no such entry.

local entry = redis.call('XRANGE', KEYS[1], (tonumber(ARGV[1]) + 1) .. '-0', '+', 'COUNT', 1)[1]
if not entry then return {} end
local size = 0
for _, value in ipairs(entry[2]) do size = size + #value end
return { tonumber(string.match(entry[1], '^%d+')), size }
