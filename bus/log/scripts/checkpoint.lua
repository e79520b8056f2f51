-- Save a reader's cursor, so that no trim removes entries that the reader has not read.
--
-- KEYS  1 head hash · 2 checkpoints hash
-- ARGV  1 the reader's field in the checkpoints · 2 the value that the caller has read from this field, or "" · 3 the
--       cursor as text
--
-- Returns "saved". Otherwise nothing was written: "moved" if the field has another value now, "erased" if the session
-- was erased.

if redis.call('HGET', KEYS[1], 'state') == 'erased' then return 'erased' end
if (redis.call('HGET', KEYS[2], ARGV[1]) or '') ~= ARGV[2] then return 'moved' end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
return 'saved'
