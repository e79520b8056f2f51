-- Done with work that was put off: nobody gets it again.
--
-- KEYS  1 retry sorted set · 2 retries hash
-- ARGV  1 group · 2 consumer, or "" where it does not matter whose it is · then the pointers
--
-- Gives how many were this consumer's. What another one has taken meanwhile is left to it.

local call, done = redis.call, 0
for i = 3, #ARGV do
  local field = ARGV[1] .. ' ' .. ARGV[i]
  local holder = string.match(call('HGET', KEYS[2], field) or '', '^%d+ %d+ %S+ (%S*) ')
  if holder and (ARGV[2] == '' or holder == ARGV[2]) then
    call('ZREM', KEYS[1], ARGV[i])
    call('HDEL', KEYS[2], field)
    done = done + 1
  end
end
return done
