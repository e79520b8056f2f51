-- Send dead letters on their way again: their work is due at once, as if it had never been tried.
--
-- KEYS  1 dead letters stream · 2 retry sorted set · 3 retries hash · then for each letter the head hash of its session
-- ARGV  1 group · then for each letter
--       its id · its session
--
-- Gives how many were. A letter that is gone, also by an earlier run of this, is left out, and so is one whose session was
-- erased: that one is removed. The session's log is not touched, and no cursor is moved.

local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
call('ZCARD', KEYS[2])
call('HLEN', KEYS[3])
local count = 0
for i = 2, #ARGV, 2 do
  local entry = call('XRANGE', KEYS[1], ARGV[i], ARGV[i])[1]
  if entry then
    local fields = {}
    for f = 1, #entry[2], 2 do fields[entry[2][f]] = entry[2][f + 1] end
    if call('HGET', KEYS[3 + i / 2], 'state') ~= 'erased' and fields.s == ARGV[i + 1] then
      local field = ARGV[1] .. ' ' .. fields.p
      if call('HEXISTS', KEYS[3], field) == 0 then
        call('HSET', KEYS[3], field, '0 ' .. fields.z .. ' ' .. fields.s .. '  ' .. string.sub(fields.r, 1, 500))
        call('ZADD', KEYS[2], now, fields.p)
      end
      count = count + 1
    end
    call('XDEL', KEYS[1], ARGV[i])
  end
end
return count
