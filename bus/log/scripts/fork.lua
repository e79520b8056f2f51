-- Begin a session as a fork of another one, which may be on another server and was told before (pin.lua).
--
-- KEYS  1 head hash · 2 checkpoints hash · 3 sessions hash
-- ARGV  1 session id · 2 parent's id · 3 cursor of the last entry that is shared · 4 its position · 5 incarnations of
--       what is shared, or "" · 6 the highest position of it that cannot be read
--
-- Gives "forked", also on a repeat; or, where nothing was written, "erased", or "exists" with the parent that the
-- session has and the cursor it begins at, if it is a fork.
--
-- It gets no `run`, so its first append begins an incarnation of its own: a cursor of what the parent says after the
-- fork is not taken for one of the fork.

local head = redis.call('HMGET', KEYS[1], 'state', 'position', 'parent', 'fork')
if head[1] == 'erased' then return 'erased' end
if head[3] == ARGV[2] and head[4] == ARGV[3] then return 'forked' end
-- One that has only promised its beginning to forks of its own exists too: it might become the fork of its fork.
if head[3] or tonumber(head[2] or 0) > 0 or redis.call('HLEN', KEYS[2]) > 0 then
  return { 'exists', head[3] or '', head[4] or '' }
end
local clock = redis.call('TIME')
local now = clock[1] .. string.format('%03d', math.floor(clock[2] / 1000))
redis.call('HSETNX', KEYS[3], ARGV[1], now)
redis.call('HSET', KEYS[1], 'position', ARGV[4], 'created', now, 'updated', now, 'parent', ARGV[2], 'fork', ARGV[3])
if ARGV[5] ~= '' then
  redis.call('HSET', KEYS[1], 'incarnations', ARGV[5], 'incarnation', string.match(ARGV[5], '[^ ]+$'))
end
if ARGV[6] ~= '0' then redis.call('HSET', KEYS[1], 'trimmed', ARGV[6]) end
return 'forked'
