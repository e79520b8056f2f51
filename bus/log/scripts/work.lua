-- Shared by the scripts of consumer groups: it stands before their own text.
--
-- Every one of them has these first
-- KEYS  1 order · 2 woken · 3 wake-ups · 4 groups · 5 open · 6 due
-- ARGV  1 group · 2 consumer · 3 how wake-ups are trimmed · 4 to which length
--
-- Open work is "<consumer> <order> <position> <attempt> <delay> <flags> <error>": the consumer that has it, or nothing;
-- the order number and the position of the wake-up that it was given for; how often it was given; how long it was put
-- off the last time, milliseconds; flags: "r" it was put off, "d" it was done before the mark came by; what went wrong.

local call, match, floor = redis.call, string.match, math.floor
local group, consumer = ARGV[1], ARGV[2]
local BLOCK = 4294967296
local now
do
  local clock = call('TIME')
  now = clock[1] * 1000 + floor(clock[2] / 1000)
end

local function text_of(number) return string.format('%.0f', number) end

local function read(session)
  local holder, order, position, attempt, delay, flags, why =
    match(call('HGET', KEYS[5], session) or '', '^(%S*) (%d+) (%d+) (%d+) (%d+) (%l*) (.*)$')
  if not holder then return nil end
  return {
    holder = holder, order = tonumber(order), position = position, attempt = tonumber(attempt), delay = tonumber(delay),
    flags = flags, error = why,
  }
end

local function write(session, work)
  local words = {
    work.holder, text_of(work.order), work.position, text_of(work.attempt), text_of(work.delay), work.flags, work.error,
  }
  call('HSET', KEYS[5], session, table.concat(words, ' '))
end

local function mark() return tonumber(match(call('HGET', KEYS[4], group) or '', '^%d+')) or 0 end

local function hint(session, position)
  local id = call('XADD', KEYS[3], 'MAXLEN', ARGV[3], ARGV[4], '*', 's', session, 'z', position, 'n', '0')
  call('HSET', KEYS[2], ':hinted', match(id, '^%d+'))
end

-- Nothing is left to do in a session up to the wake-up with that number, nor up to that position, unless the log has lost
-- its end since: then only the number counts, as it is given only once. What came later waits from now on.
local function settle(session, head, order, position)
  local score = tonumber(call('ZSCORE', KEYS[1], session) or nil)
  if not score then -- erased
    call('HDEL', KEYS[5], session)
    call('ZREM', KEYS[6], session)
    return
  end
  local woken = tonumber(match(call('HGET', KEYS[2], session) or '', '^%d+')) or 0
  local is_same_log = floor(score / BLOCK) == floor(order / BLOCK)
  local is_done, is_behind = score <= order or is_same_log and woken <= position, score > mark()
  call('HDEL', KEYS[5], session) -- a server without memory takes this one first, and then the others too
  if is_done and is_behind then
    write(session, { holder = '', order = score, position = woken, attempt = 0, delay = 0, flags = 'd', error = '' })
  elseif not is_done and not is_behind then
    write(session, { holder = '', order = score, position = woken, attempt = 0, delay = 0, flags = '', error = '' })
    call('ZADD', KEYS[6], now, session)
  end
  if not is_done then hint(session, woken) end
  local up_to = is_done and woken or is_same_log and position or 0
  if up_to > tonumber(call('HGET', head, 'g:' .. group) or 0) then call('HSET', head, 'g:' .. group, up_to) end
end

