-- Shared by the scripts that wake workers: it stands before their own text.
--
-- Gives a session the next order number of its bucket, and a wake-up. The head of bus/wire/keys.py says what the numbers mean.
-- `now` is the time that the head gets as that of its last append, milliseconds; "0" if it gets none.

local BLOCK = 4294967296

-- Gives the time in a stream's id if it is not the time of the step, nil if it is: where the clock was set back, ids go
-- on as before. An erasure looks there for what names a session. A server reads its clock anew within a script, so a
-- second is no difference; erase.lua looks as much farther.
local function time_behind(now, id)
  -- Hot path: nearly each id is of the same second, with as many digits; to compare numbers costs three times as much.
  if string.byte(id, #now + 1) == 45 and string.sub(id, 1, #now - 3) == string.sub(now, 1, -4) then return nil end
  local time = string.match(id, '^%d+')
  if time ~= now and tonumber(time) > tonumber(now) + 1000 then return time end
  return nil
end

local function wake(order, woken, wakeups, run, trim, length, session, position, now)
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
  local time = time_behind(now, done)
  if time then redis.call('HSET', woken, ':hinted', time) end
end

