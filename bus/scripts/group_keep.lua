-- Tell that a consumer is still at its work in a bucket: nobody takes it over for another heartbeat.
--
-- KEYS  1 index stream · 2 retry sorted set · 3 retries hash
-- ARGV  1 group · 2 consumer · 3 heartbeat in milliseconds · then for each
--       pointer · "r" if it was put off, else ""
--
-- Gives the pointers that are not this consumer's any more: another one has them, or nobody. Those are left as they are: one
-- that was stopped for long must not take back what others have gone on with.

local call, match = redis.call, string.match
local group, consumer = ARGV[1], ARGV[2]
local clock = call('TIME')
local due = clock[1] * 1000 + math.floor(clock[2] / 1000) + ARGV[3]
local lost, kept = {}, {}
for i = 4, #ARGV, 2 do
  local pointer, is_ours = ARGV[i], false
  if ARGV[i + 1] == 'r' then
    is_ours = match(call('HGET', KEYS[3], group .. ' ' .. pointer) or '', '^%d+ %d+ %S+ (%S*) ') == consumer
    if is_ours then call('ZADD', KEYS[2], due, pointer) end
  else
    local pending = redis.pcall('XPENDING', KEYS[1], group, pointer, pointer, 1)
    is_ours = not pending.err and pending[1] ~= nil and pending[1][2] == consumer
    if is_ours then kept[#kept + 1] = pointer end
  end
  if not is_ours then lost[#lost + 1] = pointer end
end
for first = 1, #kept, 500 do
  local page = { unpack(kept, first, math.min(first + 499, #kept)) }
  page[#page + 1] = 'JUSTID'
  call('XCLAIM', KEYS[1], group, consumer, 0, unpack(page))
end
return lost
