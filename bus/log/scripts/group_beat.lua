-- Record a consumer's heartbeat, and return the last heartbeat of each consumer.
--
-- KEYS  1 consumers hash
-- ARGV  1 consumer · 2 period of its heartbeat, milliseconds · 3 number of sessions assigned to it · 4 milliseconds of
--       silence after which a consumer is deleted · 5 "1" if the consumer leaves · 6 the agents that it serves, separated
--       by commas
--
-- Returns for each consumer its name and its field: "<number of heartbeats> <time of the last heartbeat, milliseconds>
-- <period> <sessions> <agents>". A consumer is alive if its number of heartbeats changes. The server's clock is not
-- trusted for this. The field ":seen" has the time of the last heartbeat of any consumer, in milliseconds.
--
-- To save writes, a heartbeat is written only in one of these cases: a quarter of the period has passed; the number of
-- sessions changed and a second has passed; the server's clock was set back.

local call, match = redis.call, string.match
local consumer, heartbeat, day = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4])
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function text(number) return string.format('%.0f', number) end
if ARGV[5] == '1' then
  if call('HDEL', KEYS[1], consumer) == 1 then call('HSET', KEYS[1], ':seen', text(now)) end
  return {}
end
local count, seen, _, sessions = match(call('HGET', KEYS[1], consumer) or '', '^(%d+) (%d+) (%d+) (%d+)')
local since = now - (stored(seen) or 0)
if since < 0 or since >= heartbeat / 4 - 5 or sessions ~= ARGV[3] and since > 1000 then
  local field = text((stored(count) or 0) + 1) .. ' ' .. text(now) .. ' ' .. text(heartbeat) .. ' ' .. ARGV[3] .. ' ' .. ARGV[6]
  call('HSET', KEYS[1], consumer, field, ':seen', text(now))
end
local all, answer = call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do
  local when = stored(match(all[i + 1], '^%d+ (%d+) %d+ %d+')) -- a foreign client wrote other fields
  if when and now - when > day then
    call('HDEL', KEYS[1], all[i])
  elseif when then
    answer[#answer + 1] = all[i]
    answer[#answer + 1] = all[i + 1]
  end
end
return answer
