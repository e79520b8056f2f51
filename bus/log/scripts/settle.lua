#!lua flags=allow-oom
-- Settle what became of appends whose answers were lost: each got its answer, or its number is taken by nothing, so that
-- a copy that comes late finds it used. Atomic over all of them; a repeat gives the same answers.
--
-- KEYS  1 head hash of the session
-- ARGV  1 producer · 2 its term · 3 number of the first append · 4 of the last one · 5 "1" to take the last number
--       whatever was before it, where the log is known to have lost its end; else "" · 6 producers that a head keeps
--
-- Gives an answer for each, as publish.lua gave it, or "<number> <position>  n" where it was not appended and will not
-- be; or "gap <last number> <position>" alone, where numbers before the first one are missing: the log lost its end;
-- or "stale <floor> <position>" alone, where the term is over: none of them comes any more, and whether one did is not
-- known, as so many others have published since that this producer was forgotten.
--
-- It may run out of memory's bound: a few bytes take the place of a few others, and as long as it is not answered
-- nobody knows what was published. An append must not be, so this is a script of its own.

local producer, term, first, last_wanted, is_forced = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'
local field = 'p:' .. producer
local head = redis.call('HMGET', KEYS[1], 'position', 'state', field, 'floor')
local base = head[1] or '0'
local kept, floor = answers_of(head[3], head[4], term)
local last = kept and tonumber(string.match(kept, '^%d+')) or 0
local answers = {}
if head[2] == 'erased' then
  for number = first, last_wanted do answers[#answers + 1] = string.format('%d', number) .. ' 0  z' end
  return answers
end
if floor then return { 'stale ' .. floor .. ' ' .. base } end

local is_kept = head[3]
local function keep(text)
  redis.call('HSET', KEYS[1], field, term .. ' ' .. text)
  if not is_kept then count_producer(KEYS[1], field, tonumber(ARGV[6])) end
  is_kept = true
end

if is_forced and last < last_wanted then
  local answer = string.format('%d', last_wanted) .. ' ' .. base .. '  n'
  keep(answer)
  return { answer }
end
if first > last + 1 then return { 'gap ' .. last .. ' ' .. base } end
for number = first, last_wanted do
  local text = string.format('%d', number)
  if number <= last then
    answers[#answers + 1] = string.match('|' .. kept .. '|', '|(' .. text .. ' [^|]*)|') or 'gap ' .. last .. ' ' .. base
  else
    local answer = text .. ' ' .. base .. '  n'
    answers[#answers + 1] = answer
    kept = kept and answer .. '|' .. string.match(kept, '^[^|]*') or answer
    last = number
    keep(kept)
  end
end
return answers
