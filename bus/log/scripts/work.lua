-- Shared code that is put before the text of each script of consumer groups.
--
-- The first keys and arguments of each of these scripts:
-- KEYS  1 order of an agent, a sorted set · 2 woken hash · 3 wake-ups stream · 4 groups hash · 5 open hash · 6 due, a
--       sorted set; 5 and 6 are of the agent and the group
-- ARGV  1 agent:group · 2 consumer · 3 and 4 MAXLEN arguments of wake-ups
--
-- A session that is not in the order was erased, or handed over to another agent: its open work is dropped.
--
-- A member of the open hash: session -> "<consumer> <order> <position> <attempt> <delay> <flags> <error>"
--   consumer          the consumer that has the work, or nothing
--   order, position   the order number and position of the wake-up for which the work was assigned
--   attempt           how often the work was assigned
--   delay             the last delay of a retry, milliseconds
--   flags             "r": the work was nacked; "d": the work was done before the group's mark reached its order number
--   error             the reason of the last nack

local call, match, floor = redis.call, string.match, math.floor
local place, consumer = ARGV[1], ARGV[2] -- place: the group's field in the groups hash
local agent, group = match(place, '^([^:]*):(.*)$')
local BLOCK = 4294967296
local now
do
  local clock = call('TIME')
  now = clock[1] * 1000 + floor(clock[2] / 1000)
end

local function text_of(number) return string.format('%.0f', number) end

-- Return the order number of a session; nil if it has none, or one that a foreign client has damaged.
local function order_of(score)
  local number = tonumber(score or nil)
  if number and number >= 0 and number < 1e15 then return floor(number) end
  return nil
end

local function parse(text)
  local holder, order, position, attempt, delay, flags, why =
    match(text or '', '^(%S*) (%d+) (%d+) (%d+) (%d+) (%l*) (.*)$')
  if not (holder and stored(order) and stored(position) and stored(attempt) and stored(delay)) then return nil end
  return {
    holder = holder, order = tonumber(order), position = position, attempt = tonumber(attempt), delay = tonumber(delay),
    flags = flags, error = why,
  }
end

local function read(session) return parse(call('HGET', KEYS[5], session)) end

local function write(session, work)
  local words = {
    work.holder, text_of(work.order), work.position, text_of(work.attempt), text_of(work.delay), work.flags, work.error,
  }
  call('HSET', KEYS[5], session, table.concat(words, ' '))
end

local function mark() return stored(match(call('HGET', KEYS[4], place) or '', '^%d+')) or 0 end

local function hint(session, position)
  local id = add_hint(KEYS[3], 'MAXLEN', ARGV[3], ARGV[4], '*', 's', session, 'z', position, 'n', '0', 'a', agent)
  if type(id) == 'string' then call('HSET', KEYS[2], ':hinted', match(id, '^%d+')) end
end

-- Record that nothing is left to do in a session up to an order number and a position. Later wake-ups make the session
-- wait again. If the log has lost its end since, only the order number is compared, because positions are used again.
local function settle(session, head, order, position)
  local score = order_of(call('ZSCORE', KEYS[1], session))
  if not score then -- erased, or handed over, or damaged
    call('HDEL', KEYS[5], session)
    call('ZREM', KEYS[6], session)
    return
  end
  local woken = stored(match(call('HGET', KEYS[2], session) or '', '^%d+')) or 0
  local is_same_log = floor(score / BLOCK) == floor(order / BLOCK)
  local is_done, is_behind = score <= order or is_same_log and woken <= position, score > mark()
  call('HDEL', KEYS[5], session) -- a full server accepts this as the first write, and after that all other writes
  if is_done and is_behind then
    write(session, { holder = '', order = score, position = woken, attempt = 0, delay = 0, flags = 'd', error = '' })
  elseif not is_done and not is_behind then
    write(session, { holder = '', order = score, position = woken, attempt = 0, delay = 0, flags = '', error = '' })
    call('ZADD', KEYS[6], now, session)
  end
  if not is_done then hint(session, woken) end
  local up_to = is_done and woken or is_same_log and position or 0
  local done = redis.pcall('HGET', head, 'g:' .. group) -- fails if a foreign client has replaced the head
  if type(done) ~= 'table' and up_to > (stored(done) or 0) then call('HSET', head, 'g:' .. group, text_of(up_to)) end
end

