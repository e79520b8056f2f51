-- The consumers of a group, and their last signs of life. It changes nothing.
--
-- KEYS  1 consumers hash
--
-- Gives { milliseconds of the clock, then each field of the hash and its value, see scripts/group_beat.lua }.

local clock = redis.call('TIME')
return {
  string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000)), unpack(redis.call('HGETALL', KEYS[1])),
}
