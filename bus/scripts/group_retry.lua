-- Put work off: it is given to any consumer of the group when it is due.
--
-- KEYS  1 index stream · 2 retry sorted set · 3 retries hash · then for each the head hash of its session
-- ARGV  1 group · 2 consumer · then for each
--       pointer · session · position · attempts so far · milliseconds until it is due · what went wrong · "r" if it was
--       put off before, else ""
--
-- Gives how many were put off. Only what is this consumer's is touched, so a repeat after a lost answer changes nothing,
-- and one that was stopped for long takes nothing from those who went on with it. Of an erased session nothing is kept.
--
-- A field of the retries hash is "<attempts> <position> <session> <consumer that works on it, or nothing> <error>".

local call, pcall_, match = redis.call, redis.pcall, string.match
local group, consumer = ARGV[1], ARGV[2]
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
for i = 4, #KEYS do call('HGET', KEYS[i], 'state') end -- ends it here, before its first write, where one is no hash
call('ZCARD', KEYS[2])
call('HLEN', KEYS[3])

local count = 0
for i = 3, #ARGV, 7 do
  local pointer, field, is_ours = ARGV[i], group .. ' ' .. ARGV[i], false
  if ARGV[i + 6] == 'r' then
    is_ours = match(call('HGET', KEYS[3], field) or '', '^%d+ %d+ %S+ (%S*) ') == consumer
  else
    local pending = pcall_('XPENDING', KEYS[1], group, pointer, pointer, 1)
    is_ours = not pending.err and pending[1] ~= nil and pending[1][2] == consumer
  end
  if is_ours and call('HGET', KEYS[4 + (i - 3) / 7], 'state') == 'erased' then
    call('ZREM', KEYS[2], pointer)
    call('HDEL', KEYS[3], field)
  elseif is_ours then
    -- First what a server without memory refuses: it then does nothing of this.
    call('HSET', KEYS[3], field, table.concat({ ARGV[i + 3], ARGV[i + 2], ARGV[i + 1], '', ARGV[i + 5] }, ' '))
    call('ZADD', KEYS[2], now + ARGV[i + 4], pointer)
    count = count + 1
  end
  if is_ours and ARGV[i + 6] ~= 'r' then call('XACK', KEYS[1], group, pointer) end
end
return count
