-- Remove a stored projection together with its checkpoint.
--
-- KEYS  1 projection hash · 2 checkpoints hash
-- ARGV  1 its name among the checkpoints
--
-- Gives how many of both there were.

return redis.call('UNLINK', KEYS[1]) + redis.call('HDEL', KEYS[2], ARGV[1])
