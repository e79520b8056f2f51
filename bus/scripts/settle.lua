#!lua flags=allow-oom
-- Settle what became of appends whose answers were lost: each got its answer, or its number is taken by nothing, so that
-- a copy that comes late finds it used. Atomic over all of them; a repeat gives the same answers.
--
-- KEYS  1 head hash of the session
-- ARGV  1 producer · 2 number of the first append · 3 of the last one · 4 "1" to take the last number whatever was
--       before it, where the log is known to have lost its end; else ""
--
-- Gives an answer for each, as publish.lua gave it, or "<number> <position>  n" where it was not appended and will not
-- be; or "gap <last number> <position>" alone, where numbers before the first one are missing: the log lost its end.
--
-- It may run out of memory's bound: a few bytes take the place of a few others, and as long as it is not answered
-- nobody knows what was published. An append must not be, so this is a script of its own.

local producer, first, last_wanted, is_forced = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1'
local field = 'p:' .. producer
local head = redis.call('HMGET', KEYS[1], 'position', 'state', field)
local base, kept = head[1] or '0', head[3]
local last = kept and tonumber(string.match(kept, '^%d+')) or 0
local answers = {}
if head[2] == 'erased' then
  for number = first, last_wanted do answers[#answers + 1] = string.format('%d', number) .. ' 0  z' end
  return answers
end
if is_forced and last < last_wanted then
  local answer = string.format('%d', last_wanted) .. ' ' .. base .. '  n'
  redis.call('HSET', KEYS[1], field, answer)
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
    redis.call('HSET', KEYS[1], field, kept)
  end
end
return answers
