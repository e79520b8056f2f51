-- Append live deltas below the session's newest position.
--
-- KEYS  1 head hash · 2 live stream
-- ARGV  1 producer · 2 entry version · 3 stream length · 4 milliseconds to live · then one JSON text a delta
--
-- Gives the id of the last delta. The server's own numbers would begin at 0, which is the position itself, so the
-- first delta below a position is numbered here.

local position = redis.call('HGET', KEYS[1], 'position') or '0'
local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
local id = position .. '-*'
if not newest[1] or string.match(newest[1][1], '^%d+') ~= position then id = position .. '-1' end
local clock = redis.call('TIME')
local now = clock[1] .. string.format('%03d', math.floor(clock[2] / 1000))
local header = ARGV[2] .. ' ' .. now .. ' ' .. ARGV[1]
local added
for i = 5, #ARGV do
  added = redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[3], id, 'h', header, 'm', ARGV[i])
  id = position .. '-*'
end
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return added
