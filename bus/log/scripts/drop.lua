-- Delete a stored projection and its checkpoint.
--
-- KEYS  1 projection hash · 2 checkpoints hash
-- ARGV  1 the projection's field in the checkpoints
--
-- Returns how many of these two existed: 0, 1 or 2.

return redis.call('UNLINK', KEYS[1]) + redis.call('HDEL', KEYS[2], ARGV[1])
