-- Return the publishes to a bucket's sessions since an earlier read of the bucket's index. Read-only.
--
-- KEYS  1 index stream
-- ARGV  1 id of the last index entry that was read, "" for the first read, or "newest" · 2 most index entries to return
--
-- Returns { milliseconds of the clock, number of index entries ever added, id of the last of them, session, position,
-- session, position, … }, the oldest first. The first read returns no sessions; "newest" returns the newest first.

local clock = redis.call('TIME')
local now = string.format('%d', clock[1] * 1000 + math.floor(clock[2] / 1000))
local info = redis.pcall('XINFO', 'STREAM', KEYS[1])
if info.err then return { now, 0, '0-0' } end
local found = {}
for i = 1, #info, 2 do found[info[i]] = info[i + 1] end
local answer = { now, found['entries-added'], found['last-generated-id'] }
if ARGV[1] == '' then return answer end
local entries
if ARGV[1] == 'newest' then
  entries = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', ARGV[2])
else
  entries = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
end
for _, entry in ipairs(entries) do
  local fields = {}
  for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
  answer[#answer + 1] = fields.s or ''
  answer[#answer + 1] = fields.z or ''
end
return answer
