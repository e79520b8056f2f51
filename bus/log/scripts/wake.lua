-- Shared code that is put before the text of each script that wakes workers.
--
-- `wake` gives a session the next order number of its bucket, in the order of its agent, and adds a wake-up.
-- bus/wire/keys.py explains the numbers.
-- `now` is the new time of the last append in the head, in milliseconds; "0" if the head does not change.

local BLOCK = 4294967296

-- Return the time in a stream id if it is later than the time of the step, else nil. If the clock was set back, new ids
-- keep the higher time. An erasure uses the result to find the entries that name a session. The server may read its clock
-- again within a script, so up to a second is no difference; erase.lua searches with the same margin.
local function time_behind(now, id)
  -- Hot path: almost every id has the same second and as many digits. Comparing numbers costs three times as much.
  if string.byte(id, #now + 1) == 45 and string.sub(id, 1, #now - 3) == string.sub(now, 1, -4) then return nil end
  local time = string.match(id, '^%d+')
  if time ~= now and tonumber(time) > tonumber(now) + 1000 then return time end
  return nil
end

-- Return the number after which a bucket that has lost its order numbers continues. All known numbers are below it.
local function highest_order(order)
  local count = redis.pcall('ZCOUNT', order, '-inf', '(1e15')
  if type(count) == 'table' or count == 0 then return 0 end
  return math.max(tonumber(redis.call('ZRANGEBYSCORE', order, '-inf', '(1e15', 'WITHSCORES', 'LIMIT', count - 1, 1)[2]), 0)
end

local function wake(order, woken, wakeups, run, trim, length, session, position, agent, now)
  local last = redis.pcall('HMGET', woken, ':last', ':run')
  if last.err then return last.err end
  local number, is_known = stored(last[1]), last[2] == run
  if not number then number, is_known = highest_order(order), false end
  if not is_known then number = (math.floor(number / BLOCK) + 1) * BLOCK end
  number = string.format('%.0f', number + 1)
  local done = redis.pcall('ZADD', order, number, session)
  if type(done) == 'table' and done.err then return done.err end
  done = add_hint(wakeups, 'MAXLEN', trim, length, '*', 's', session, 'z', position, 'n', number, 'a', agent)
  if type(done) == 'table' and done.err then return done.err end
  redis.call('HSET', woken, ':last', number, ':run', run, session, position)
  local time = time_behind(now, done)
  if time then redis.call('HSET', woken, ':hinted', time) end
end

