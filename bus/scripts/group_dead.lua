-- Set work aside as a dead letter, with the reason: nobody gets it again, unless it is sent on its way again.
--
-- KEYS  1 index stream · 2 retry sorted set · 3 retries hash · 4 dead letters stream · 5 groups hash · 6 head hash
-- ARGV  1 group · 2 consumer · 3 pointer · 4 session · 5 position · 6 attempts · 7 reason · 8 bytes · 9 how many bytes there
--       were · 10 "r" if the work was put off, else "" · 11 the most letters to keep
--
-- Gives the id of the letter; "" if the work is not this consumer's any more, so that a repeat adds nothing, or the session
-- was erased, of which nothing is kept. Letters that made room are counted in the groups hash.
--
-- A letter: s session, z position, p pointer, n attempts, r reason, t milliseconds, w consumer, l bytes there were, b bytes.

local call = redis.call
local group, consumer, pointer = ARGV[1], ARGV[2], ARGV[3]
local field, is_ours = group .. ' ' .. pointer, false
local state = call('HGET', KEYS[6], 'state')
call('XLEN', KEYS[4]) -- this and the next end it here where a key is not of its type
call('ZCARD', KEYS[2])
call('HLEN', KEYS[5])
if ARGV[10] == 'r' then
  is_ours = string.match(call('HGET', KEYS[3], field) or '', '^%d+ %d+ %S+ (%S*) ') == consumer
else
  local pending = redis.pcall('XPENDING', KEYS[1], group, pointer, pointer, 1)
  is_ours = not pending.err and pending[1] ~= nil and pending[1][2] == consumer
end
if not is_ours then return '' end

local id = ''
if state ~= 'erased' then
  local clock = call('TIME')
  local now = string.format('%d', clock[1] * 1000 + math.floor(clock[2] / 1000))
  id = call('XADD', KEYS[4], '*', 's', ARGV[4], 'z', ARGV[5], 'p', pointer, 'n', ARGV[6], 'r', ARGV[7], 't', now,
    'w', consumer, 'l', ARGV[9], 'b', ARGV[8])
  call('HSETNX', KEYS[5], group, '0-0 0') -- who looks for letters of all groups finds this one
  local dropped = call('XTRIM', KEYS[4], 'MAXLEN', '=', ARGV[11])
  if dropped > 0 then call('HINCRBY', KEYS[5], group .. ':dropped', dropped) end
end
if ARGV[10] == 'r' then
  call('ZREM', KEYS[2], pointer)
  call('HDEL', KEYS[3], field)
else
  call('XACK', KEYS[1], group, pointer)
end
return id
