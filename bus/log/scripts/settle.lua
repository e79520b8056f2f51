#!lua flags=allow-oom
-- Find the outcome of appends whose answers were lost. If an append did not arrive, its number is marked as used, so that
-- a late copy of the append is refused. Atomic over all appends; a repeat returns the same answers.
--
-- KEYS  1 head hash of the session · 2 LLM stream · 3 extension stream
-- ARGV  1 producer · 2 the producer's term · 3 number of the first append · 4 number of the last append · 5 "1" to mark
--       the last number as used even if earlier numbers are missing, because the log is known to have lost its end; else ""
--       6 most producers that a head keeps
--
-- Returns an answer for each append: that of publish.lua with the time of the append, if it appended, or "<number> <position>  n" if the append was not applied and
-- can no longer be applied. Or a single answer:
--   "gap <last number> <position>"   numbers before ARGV 3 are missing: the log lost its end
--   "damaged <key>, <field>"         a stored value is damaged; nothing was written, and the outcomes are unknown
--   "stale <floor> <position>"       the term is over, and no append of this term is accepted any more. The outcomes are
--                                    unknown: many other producers have published since, so this producer was deleted
--
-- The flag allow-oom lets this script run on a full server: it only replaces a few bytes, and callers wait for the
-- outcome. An append must not run on a full server, so this is a separate script.

local producer, term, first, last_wanted, is_forced = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'
local field = 'p:' .. producer
local head = redis.call('HMGET', KEYS[1], 'position', 'state', field, 'floor')
local base = head[1] or '0'
local damage = not stored(base) and 'position' or head[3] and not string.find(head[3], '^%d+ %d+ ') and field
  or head[4] and not stored(head[4], 18) and 'floor'
if damage and head[2] ~= 'erased' then return { 'damaged head, ' .. damage } end
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

-- Return a kept answer with the time of its append, which is that of the entry after the position before.
local function with_time(answer)
  local start, place, rest = string.match(answer, '^(%d+ (%d+) %S*)( .*)$')
  place = place and string.format('%d', place + 1) .. '-0'
  for lane = 2, place and 3 or 0 do
    local entry = redis.call('XRANGE', KEYS[lane], place, place)[1]
    local time = entry and string.match(entry[2][2] or '', '^%S+ (%d+) ')
    if time then return start .. '@' .. time .. rest end
  end
  return answer
end

for number = first, last_wanted do
  local text = string.format('%d', number)
  if number <= last then
    local answer = string.match('|' .. kept .. '|', '|(' .. text .. ' [^|]*)|')
    answers[#answers + 1] = answer and with_time(answer) or 'gap ' .. last .. ' ' .. base
  else
    local answer = text .. ' ' .. base .. '  n'
    answers[#answers + 1] = answer
    kept = kept and answer .. '|' .. string.match(kept, '^[^|]*') or answer
    last = number
    keep(kept)
  end
end
return answers
