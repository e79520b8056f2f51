-- Store a projection's state with its checkpoint, if the stored position is still the one at which the fold began.
--
-- KEYS  1 projection hash · 2 checkpoints hash · 3 head hash
-- ARGV  1 position at which the fold began, 0 for none · 2 position that the fold reached · 3 state · 4 incarnation of the
--       position that the fold reached · 5 the projection's field in the checkpoints · 6 proof of the entry at that
--       position, or ""
--
-- Returns 1 if the state was stored, 0 if another state was stored since the fold began, -1 if the session was erased. A
-- repeat returns the same answer.

if redis.call('HGET', KEYS[3], 'state') == 'erased' then return -1 end
local stored = redis.call('HGET', KEYS[1], 'position') or '0'
if not string.find(stored, '^%d+$') or #stored > 18 then stored = '0' end -- a damaged state is replaced
if stored == ARGV[2] and redis.call('HGET', KEYS[1], 'state') == ARGV[3]
  and (redis.call('HGET', KEYS[1], 'proof') or '') == ARGV[6] then return 1 end
if stored ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'position', ARGV[2], 'state', ARGV[3], 'incarnation', ARGV[4], 'proof', ARGV[6])
redis.call('HSET', KEYS[2], ARGV[5], ARGV[2])
return 1
