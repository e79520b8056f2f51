-- Where many sessions of a bucket stand, in as few bytes as can be: for readers that want to know which have changed.
--
-- KEYS  head hashes
--
-- Gives for each "<position> <incarnation> <state>"; "?" where the key is not a hash.

local answers = {}
for i, key in ipairs(KEYS) do
  local head = redis.pcall('HMGET', key, 'position', 'incarnation', 'state')
  answers[i] = head.err and '?' or (head[1] or '0') .. ' ' .. (head[2] or '') .. ' ' .. (head[3] or '')
end
return answers
