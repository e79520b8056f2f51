-- Return the work of a group for one agent in a bucket that failed: what waits for another attempt, and dead letters.
-- Read-only.
--
-- KEYS  1 to 6 see work.lua · 7 dead letters stream, or absent
-- ARGV  1 to 4 see work.lua; the consumer is "" · 5 session, or "" for all · 6 most bytes of a reason · 7 most sessions
--       to try again · 8 the letters that the caller knows, as an earlier answer named them, or ""
--
-- Returns a list:
--   { session, "1" if a consumer has it, position, attempts that failed, last delay, reason, … }
--   the letters, as "<number> <id of the last one>"; "" without KEYS 7
--   { session, position, attempts, milliseconds, reason, … }: the newest letter of each session; empty if the caller
--   knows the letters

local wanted, length = ARGV[5], tonumber(ARGV[6])
local tried, names = {}, { wanted }
if wanted == '' then names = call('HKEYS', KEYS[5]) end
for _, session in ipairs(names) do
  local work = read(session)
  -- Work of a session that was handed over stays until the next fetch.
  if work and work.error ~= '' and work.flags ~= 'd' and call('ZSCORE', KEYS[1], session) then
    local is_held = work.holder ~= ''
    local failed = text_of(math.max(work.attempt - (is_held and 1 or 0), 0))
    local words = { session, is_held and '1' or '', work.position, failed, text_of(work.delay), string.sub(work.error, 1, length) }
    for _, word in ipairs(words) do tried[#tried + 1] = word end
    if #tried >= 6 * tonumber(ARGV[7]) then break end
  end
end
if not KEYS[7] then return { tried, '', {} } end
local last = call('XREVRANGE', KEYS[7], '+', '-', 'COUNT', 1)[1]
local version = text_of(call('XLEN', KEYS[7])) .. ' ' .. (last and last[1] or '')
if version == ARGV[8] then return { tried, version, {} } end
local letters, seen = {}, {}
for _, entry in ipairs(call('XREVRANGE', KEYS[7], '+', '-')) do
  local fields = {}
  for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
  local session = fields.s
  if session and not seen[session] and (wanted == '' or wanted == session) and stored(fields.z) and stored(fields.n)
    and stored(fields.t) then
    seen[session] = true
    local words = { session, fields.z, fields.n, fields.t, string.sub(fields.r or '', 1, length) }
    for _, word in ipairs(words) do letters[#letters + 1] = word end
  end
end
return { tried, version, letters }
