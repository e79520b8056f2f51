-- Shared code that is put before the text of each script that knows entries by their proofs.
--
-- The proof of an entry is the sum of its checksum and its time, modulo 2^32, in hexadecimal digits; see codec.py. The
-- head's field `ends` has "<position>.<proof>" for the last entries of the last three appends, the newest last. It stays
-- below 64 bytes, because with a longer value the server would store the whole head in a larger form.

-- Return the proof of an entry with this checksum and time.
local function proof_of(checksum, time)
  return string.format('%x', ((tonumber(checksum) or string.match(checksum, '%d+')) + time) % 4294967296)
end

-- Return the proof that an entry's header tells; nil if the bus did not write the header.
local function proof_in(header)
  local time, checksum = string.match(header or '', '^%S+ (%d+) %S+ %S+ (i?%d+)$')
  return time and proof_of(checksum, time)
end

-- Return the listed proof of the entry at a position, or nil.
local function proof_among(ends, position)
  return ends and string.match(' ' .. ends, ' ' .. string.format('%d', position) .. '%.(%x+)')
end

-- Return the list with the end of another append. Hot path: a pattern without "^" would cost as much as the append.
local function with_end(ends, position, checksum, time)
  local kept = ends and #ends < 80 and (string.match(ends, '^%S+ (%S+ %S+)$') or ends)
  return (kept and kept .. ' ' or '') .. position .. '.' .. proof_of(checksum, time)
end

