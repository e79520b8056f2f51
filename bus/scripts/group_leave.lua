-- A consumer leaves a bucket: what is pending with it is due at once for the others, and its name is removed.
--
-- KEYS  1 index stream · 2 retry sorted set · 3 retries hash
-- ARGV  1 group · 2 consumer
--
-- Gives how many pieces of work it left, and a 1 if it has to be done again, as there were more than one step takes.
-- Removing a consumer forgets what is pending with it, so that comes last, in the step that has found nothing more.

local PAGE = 500
local call, match = redis.call, string.match
local group, consumer = ARGV[1], ARGV[2]
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local pending = redis.pcall('XPENDING', KEYS[1], group, '-', '+', PAGE, consumer)
if pending.err then pending = {} end -- no such group
call('ZCARD', KEYS[2])
local count = 0
for _, item in ipairs(pending) do
  local entry = call('XRANGE', KEYS[1], item[1], item[1])[1]
  local fields = {}
  for f = 1, entry and #entry[2] or 0, 2 do fields[entry[2][f]] = entry[2][f + 1] end
  if fields.s and fields.z and (fields.w or '') ~= '' then
    -- One time less: it was not tried by who only hands it back.
    local attempts = string.format('%d', math.max(item[4] - 1, 0))
    call('HSET', KEYS[3], group .. ' ' .. item[1], attempts .. ' ' .. fields.z .. ' ' .. fields.s .. '  ')
    call('ZADD', KEYS[2], now, item[1])
    count = count + 1
  end
  call('XACK', KEYS[1], group, item[1])
end
if #pending == PAGE then return { count, 1 } end
local taken = call('HGETALL', KEYS[3])
for i = 1, #taken, 2 do
  local owner, pointer = match(taken[i], '^(%S+) (%S+)$')
  local attempt, what, holder, rest = match(taken[i + 1], '^(%d+) (%d+ %S+) (%S*) (.*)$')
  if owner == group and holder == consumer then
    call('HSET', KEYS[3], taken[i], string.format('%d %s  %s', math.max(attempt - 1, 0), what, rest))
    call('ZADD', KEYS[2], now, pointer)
    count = count + 1
  end
end
redis.pcall('XGROUP', 'DELCONSUMER', KEYS[1], group, consumer)
return { count, 0 }
