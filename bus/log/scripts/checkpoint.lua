-- Save how far a reader is, so that no trim takes what it has not read.
--
-- KEYS  1 head hash · 2 checkpoints hash
-- ARGV  1 the reader's field · 2 what is stored there as the caller has seen it, or "" · 3 the cursor as text
--
-- Gives "saved" · "moved", where something else is stored now · "erased". With the last two nothing was written.

if redis.call('HGET', KEYS[1], 'state') == 'erased' then return 'erased' end
if (redis.call('HGET', KEYS[2], ARGV[1]) or '') ~= ARGV[2] then return 'moved' end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
return 'saved'
