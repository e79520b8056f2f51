-- Remove a session from the waiting work of an agent that no worker serves, because a loop outside workers did the work.
--
-- KEYS  1 order of the agent, a sorted set · 2 woken hash · 3 groups hash · 4 head hash of the session
-- ARGV  1 session id · 2 agent · 3 epoch of the lease under which the work was done · 4 position up to which it was done
--
-- Returns 1 if the session was removed. Nothing changes if the session was woken after the position, if the lease is over,
-- or if a group has fetched work of the agent: its consumers have to see the session themselves. Safe to repeat.

local session, agent = ARGV[1], ARGV[2]
local head = redis.call('HMGET', KEYS[4], 'epoch', 'agent')
if head[1] ~= ARGV[3] or head[2] ~= agent then return 0 end
for _, field in ipairs(redis.call('HKEYS', KEYS[3])) do
  if string.match(field, '^[^:]*') == agent then return 0 end
end
local woken = tonumber(string.match(redis.call('HGET', KEYS[2], session) or '', '^%d+'))
if not woken or woken > tonumber(ARGV[4]) then return 0 end
redis.call('ZREM', KEYS[1], session)
redis.call('HDEL', KEYS[2], session)
return 1
