-- The size of the first entry of a stream behind a position, without the entry itself.
--
-- KEYS  1 stream
-- ARGV  1 position
--
-- Gives the entry's position and the bytes of its values; nothing if there is none.

local entry = redis.call('XRANGE', KEYS[1], (tonumber(ARGV[1]) + 1) .. '-0', '+', 'COUNT', 1)[1]
if not entry then return {} end
local size = 0
for _, value in ipairs(entry[2]) do size = size + #value end
return { tonumber(string.match(entry[1], '^%d+')), size }
