-- Return the consumers of a group and their last heartbeats. Read-only.
--
-- KEYS  1 consumers hash
--
-- Returns { milliseconds of the clock, then each field of the hash and its value }. group_beat.lua describes the fields.

local clock = redis.call('TIME')
return {
  string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000)), unpack(redis.call('HGETALL', KEYS[1])),
}
