-- Save how far a reader is, so that no trim takes what it has not read.
--
-- KEYS  1 head hash · 2 checkpoints hash
-- ARGV  1 the reader's field · 2 position · 3 delta · 4 incarnation · 5 the cursor as text · 6 "1" if it may go back
--
-- Gives "saved" · "kept", where a later place is stored that is in the log · "lost <position>", where the log does not hold
-- what this reader has seen, with the position up to which it does · "erased".

local head = redis.call('HMGET', KEYS[1], 'position', 'state', 'incarnations')
local log_position = tonumber(head[1] or 0)
if head[2] == 'erased' then return 'erased' end

-- As `SessionHead.agreed`.
local function agreed(position, token)
  local reach, words = 0, {}
  if token == '' then
    reach = log_position
  else
    for word in string.gmatch(head[3] or '', '%S+') do table.insert(words, 1, word) end
    local stop = log_position
    for _, word in ipairs(words) do
      local name, start = string.match(word, '^(.*):(%d+)$')
      if name == token then
        reach = stop
        break
      end
      stop = tonumber(start)
    end
  end
  return math.min(position, reach)
end

local position, delta = tonumber(ARGV[2]), tonumber(ARGV[3])
local found = agreed(position, ARGV[4])
if found < position then return 'lost ' .. found end
local stored = redis.call('HGET', KEYS[2], ARGV[1])
if stored and ARGV[6] ~= '1' then
  local at, below, token = string.match(stored, '^(%d+)%-?(%d*)%.?(.*)$')
  at, below = tonumber(at or 0), tonumber(below or 0) or 0
  local is_later = at > position or at == position and below > delta
  if is_later and agreed(at, token or '') == at then return 'kept' end
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[5])
return 'saved'
