-- Store a projection's state with its checkpoint, if it still stands where the fold began.
--
-- KEYS  1 projection hash · 2 checkpoints hash · 3 head hash
-- ARGV  1 position the fold began at, 0 for none · 2 position it reached · 3 state · 4 incarnation of that position
--       5 its name among the checkpoints
--
-- Gives 1 if it was stored, 0 if somebody else has stored another one meanwhile, -1 if the session was erased. A repeat,
-- after a lost answer, gives what the first gave.

if redis.call('HGET', KEYS[3], 'state') == 'erased' then return -1 end
local stored = redis.call('HGET', KEYS[1], 'position') or '0'
if stored == ARGV[2] and redis.call('HGET', KEYS[1], 'state') == ARGV[3] then return 1 end
if stored ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'position', ARGV[2], 'state', ARGV[3], 'incarnation', ARGV[4])
redis.call('HSET', KEYS[2], ARGV[5], ARGV[2])
return 1
