-- Delete a session's open work of an agent that it was handed over from. Safe to repeat.
--
-- KEYS  1 order of the agent, a sorted set · then for each group its open hash and its due sorted set
-- ARGV  1 session id
--
-- Returns the number of deleted works. Nothing is deleted if the session belongs to the agent again.

local count = 0
if redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
for i = 2, #KEYS, 2 do
  count = count + redis.call('HDEL', KEYS[i], ARGV[1])
  redis.call('ZREM', KEYS[i + 1], ARGV[1])
end
return count
