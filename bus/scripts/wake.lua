-- Shared by the scripts that wake workers: it stands before their own text.
--
-- Gives a session the next order number of its bucket, and a wake-up. The head of bus/keys.py says what the numbers mean.

local BLOCK = 4294967296

local function wake(order, woken, wakeups, run, trim, length, session, position)
  local last = redis.pcall('HMGET', woken, ':last', ':run')
  if last.err then return last.err end
  local number = tonumber(last[1] or 0)
  if last[2] ~= run then number = (math.floor(number / BLOCK) + 1) * BLOCK end
  number = string.format('%.0f', number + 1)
  local done = redis.pcall('ZADD', order, number, session)
  if type(done) == 'table' and done.err then return done.err end
  done = redis.pcall('XADD', wakeups, 'MAXLEN', trim, length, '*', 's', session, 'z', position, 'n', number)
  if type(done) == 'table' and done.err then return done.err end
  redis.call('HSET', woken, ':last', number, ':run', run, session, position)
end

