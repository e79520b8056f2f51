-- Count media in the namespace, or stop counting them.
--
-- KEYS  1 sizes: SHA-256 of media -> bytes; ":bytes" is their sum
-- ARGV  1 SHA-256 · 2 bytes of the media, or "" to stop counting them · 3 "1" if the namespace has room for them
--
-- Returns 1 if the media are counted now, 0 if they were before, -1 if there is no room; or the bytes that no longer count.

local sizes, sha256, size = KEYS[1], ARGV[1], ARGV[2]
local counted = redis.call('HGET', sizes, sha256)
if size == '' then
  if not counted then return 0 end
  redis.call('HDEL', sizes, sha256)
  local bytes = stored(counted) or 0
  count_bytes(sizes, -bytes, 0)
  if (tonumber(redis.call('HGET', sizes, ':bytes') or 0) or 0) <= 0 then redis.call('HDEL', sizes, ':bytes') end
  return bytes
end
if counted then return 0 end
if ARGV[3] ~= '1' then return -1 end
redis.call('HSET', sizes, sha256, size)
count_bytes(sizes, size, size)
return 1
