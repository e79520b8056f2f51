-- A consumer's sign of life, and those of all others.
--
-- KEYS  1 consumers hash
-- ARGV  1 consumer · 2 heartbeat in milliseconds · 3 sessions it has in hand · 4 milliseconds after which a silent one is
--       forgotten · 5 "1" if it leaves
--
-- Gives for each consumer its name and its field, "<count of its signs> <milliseconds of the last> <heartbeat> <sessions>".
-- Whether another one is alive is told by the count alone, by who sees it change: no clock of a server is believed. The
-- field ":seen" has the milliseconds of the last sign of all.
--
-- The sign is written when a quarter of the heartbeat has passed on the server's clock, or it went back, or the sessions
-- changed and a second has passed: a server that writes its file at each command has little to do for who only waits.

local call, match = redis.call, string.match
local consumer, heartbeat, day = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4])
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function text(number) return string.format('%.0f', number) end
if ARGV[5] == '1' then
  if call('HDEL', KEYS[1], consumer) == 1 then call('HSET', KEYS[1], ':seen', text(now)) end
  return {}
end
local count, seen, _, sessions = match(call('HGET', KEYS[1], consumer) or '', '^(%d+) (%d+) (%d+) (%d+)$')
local since = now - tonumber(seen or 0)
if since < 0 or since >= heartbeat / 4 - 5 or sessions ~= ARGV[3] and since > 1000 then
  local field = text(tonumber(count or 0) + 1) .. ' ' .. text(now) .. ' ' .. text(heartbeat) .. ' ' .. ARGV[3]
  call('HSET', KEYS[1], consumer, field, ':seen', text(now))
end
local all, told = call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do
  local when = tonumber(match(all[i + 1], '^%d+ (%d+)'))
  if when and now - when > day then
    call('HDEL', KEYS[1], all[i])
  elseif when then
    told[#told + 1] = all[i]
    told[#told + 1] = all[i + 1]
  end
end
return told
