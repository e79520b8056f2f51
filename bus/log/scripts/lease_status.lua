-- Return the leases of sessions of one bucket. Read-only.
--
-- KEYS  the head hash of each session
--
-- Returns for each key { owner or "", epoch, remaining milliseconds, position }. A damaged number counts as 0.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local answers = {}
local function text_of(number) return string.format('%.0f', stored(number) or 0) end
for i = 1, #KEYS do
  local head = redis.pcall('HMGET', KEYS[i], 'owner', 'epoch', 'lease_until', 'position')
  if head.err then head = {} end -- a foreign client wrote this key
  local left = string.format('%.0f', (stored(head[3]) or 0) - now)
  answers[i] = { head[1] or '', text_of(head[2]), left, text_of(head[4]) }
end
return answers
