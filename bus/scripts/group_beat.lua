-- A consumer's sign of life; who else has fallen silent.
--
-- KEYS  1 alive sorted set · 2 consumers hash
-- ARGV  1 consumer · 2 heartbeat in milliseconds · 3 sessions it has in hand · 4 milliseconds a silent one is told of ·
--       5 milliseconds after which a silent one is forgotten · 6 "1" if it leaves
--
-- Gives how many fell silent in that time, how many are alive, and milliseconds until the next one would count as silent,
-- -1 if there is no other.
--
-- The sign is written when a quarter of the heartbeat has passed, or the sessions changed and a second has: a server that
-- writes its file at each command has little to do for who only waits. A field of the consumers hash is "<milliseconds of
-- the sign> <heartbeat> <sessions>".

local call = redis.call
local consumer, heartbeat, window, day = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[5])
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
if ARGV[6] == '1' then
  call('ZREM', KEYS[1], consumer)
  call('HDEL', KEYS[2], consumer)
  return { 0, 0, -1 }
end
local until_ = tonumber(call('ZSCORE', KEYS[1], consumer) or 0)
local seen, told = string.match(call('HGET', KEYS[2], consumer) or '', '^(%d+) %d+ (%d+)$')
local is_late = until_ < now + heartbeat * 3 / 4 or until_ > now + heartbeat
if is_late or told ~= ARGV[3] and now - tonumber(seen or 0) > 1000 then
  call('ZADD', KEYS[1], string.format('%d', now + heartbeat), consumer)
  call('HSET', KEYS[2], consumer, string.format('%d %d %s', now, heartbeat, ARGV[3]))
  local gone = call('ZRANGEBYSCORE', KEYS[1], '-inf', now - day, 'LIMIT', 0, 100)
  if #gone > 0 then
    call('ZREM', KEYS[1], unpack(gone))
    call('HDEL', KEYS[2], unpack(gone))
  end
end
local silent = call('ZCOUNT', KEYS[1], now - window, now)
local alive = call('ZCOUNT', KEYS[1], '(' .. string.format('%d', now), '+inf')
local nearest = call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%d', now), '+inf', 'WITHSCORES', 'LIMIT', 0, 2)
local other = nearest[1] == consumer and nearest[4] or nearest[2]
if nearest[1] == consumer and not nearest[3] then other = nil end
return { silent, alive, other and tonumber(other) - now or -1 }
