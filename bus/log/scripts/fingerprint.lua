-- Return the progress of many sessions of a bucket in few bytes, for readers that check for changes. Read-only.
--
-- KEYS  head hashes
--
-- Returns for each key "<position> <incarnation> <state> <ends>", or "?" if the key is not a hash.

local answers = {}
for i, key in ipairs(KEYS) do
  local head = redis.pcall('HMGET', key, 'position', 'incarnation', 'state', 'ends')
  answers[i] = head.err and '?'
    or (head[1] or '0') .. ' ' .. (head[2] or '') .. ' ' .. (head[3] or '') .. ' ' .. (head[4] or '')
end
return answers
