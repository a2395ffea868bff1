#!lua name=slipstream_index_v2

-- The fenced writes of the global prefix index, and its membership leases. docs/index.md has the schema.
-- Any change of behaviour takes a new version in the library's and the functions' names, so that two versions
-- of Slipstream can share a server. Runs on Redis >= 7.0 and Valkey.

local VERSION = 'v'            -- field of the points hash that changes with the slot table
local MAX_SLOTS = 16384        -- 14 bits
local SPECULATIVE = 3          -- tier
local CHUNK = 512              -- arguments per call; Lua's unpack has a limit of some thousands
local COOLING_MS = 30000       -- a cleared slot rests: longer than any lookup or speculation lives
local FENCED = -1
local BUSY = -1
local FULL = -2

local function names(keys)
  return {
    points = keys[1], slots = keys[2], workers = keys[3], meta = keys[4], beats = keys[5], dirty = keys[6],
    cooling = keys[7], free = keys[8], guesses = keys[9], guess_until = keys[10], reverse = keys[11],
  }
end

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function encode(slot, tier)
  local code = slot * 4 + tier
  return string.char(math.floor(code / 256), code % 256)
end

-- The place of `slot` in a sorted value, and its tier, or nil where it would be inserted.
local function find(value, slot)
  local low, high = 1, #value / 2
  while low <= high do
    local middle = math.floor((low + high) / 2)
    local a, b = string.byte(value, 2 * middle - 1, 2 * middle)
    local code = a * 256 + b
    local here = math.floor(code / 4)
    if here == slot then
      return middle, code % 4
    elseif here < slot then
      low = middle + 1
    else
      high = middle - 1
    end
  end
  return low, nil
end

local function splice(value, place, replaced, bytes)
  local rest = 2 * place - 1
  if replaced then
    rest = rest + 2
  end
  return string.sub(value, 1, 2 * place - 2) .. bytes .. string.sub(value, rest)
end

local function owns(k, slot, owner)
  return redis.call('HGET', k.slots, slot) == 'L' .. owner
end

-- Cold at once: lookups ignore the entries of a slot that is not live.
local function retire(k, slot, nonce)
  local record = redis.call('HGET', k.slots, slot)
  if not record or string.sub(record, 1, 1) ~= 'L' then
    return
  end
  local worker = string.sub(record, 18)
  redis.call('HSET', k.slots, slot, 'D' .. string.sub(record, 2))
  redis.call('ZREM', k.beats, slot)
  redis.call('SADD', k.dirty, slot)
  redis.call('HDEL', k.meta, 'seq:' .. slot)
  if redis.call('HGET', k.workers, worker) == slot then
    redis.call('HDEL', k.workers, worker)
  end
  redis.call('HSET', k.points, VERSION, nonce)
end

local function store(k, slot, tier, args, first, count)
  local bytes = encode(slot, tier)
  local last = first + count - 1
  for start = first, last, CHUNK do
    local stop = math.min(start + CHUNK - 1, last)
    local values = redis.call('HMGET', k.points, unpack(args, start, stop))
    local changes = {}
    for i = 1, stop - start + 1 do
      local value = values[i]
      local changed = nil
      if not value then
        changed = bytes
      else
        local place, held = find(value, slot)
        if held ~= tier then
          changed = splice(value, place, held, bytes)
        end
      end
      if changed then
        changes[#changes + 1] = args[start + i - 1]
        changes[#changes + 1] = changed
      end
    end
    if #changes > 0 then
      redis.call('HSET', k.points, unpack(changes))
    end
    redis.call('SADD', k.reverse, unpack(args, start, stop))
  end
end

-- Takes the slot out of these points' values; with `only_tier`, only where it is there in that tier.
local function withdraw(k, slot, keys, first, count, only_tier)
  local last = first + count - 1
  for start = first, last, CHUNK do
    local stop = math.min(start + CHUNK - 1, last)
    local values = redis.call('HMGET', k.points, unpack(keys, start, stop))
    local changes, gone = {}, {}
    for i = 1, stop - start + 1 do
      local value, key = values[i], keys[start + i - 1]
      if value then
        local place, held = find(value, slot)
        if held and (not only_tier or held == only_tier) then
          if #value == 2 then
            gone[#gone + 1] = key
          else
            changes[#changes + 1] = key
            changes[#changes + 1] = splice(value, place, held, '')
          end
        end
      end
    end
    if #changes > 0 then
      redis.call('HSET', k.points, unpack(changes))
    end
    if #gone > 0 then
      redis.call('HDEL', k.points, unpack(gone))
    end
  end
end

-- Removes speculative entries whose life is over. True when none is overdue any more.
local function expire_guesses(k, now, limit)
  local batches = redis.call('ZRANGEBYSCORE', k.guesses, '-inf', now, 'LIMIT', 0, limit)
  for _, batch in ipairs(batches) do
    local slot_bytes = string.sub(batch, 1, 2)
    local a, b = string.byte(slot_bytes, 1, 2)
    local fields, keys = {}, {}
    for at = 11, #batch, 16 do
      keys[#keys + 1] = string.sub(batch, at, at + 15)
      fields[#fields + 1] = slot_bytes .. keys[#keys]
    end
    local overdue, overdue_fields = {}, {}
    local untils = redis.call('HMGET', k.guess_until, unpack(fields))
    for i = 1, #fields do
      if untils[i] and tonumber(untils[i]) <= now then
        overdue[#overdue + 1] = keys[i]
        overdue_fields[#overdue_fields + 1] = fields[i]
      end
    end
    if #overdue > 0 then
      redis.call('HDEL', k.guess_until, unpack(overdue_fields))
      withdraw(k, a * 256 + b, overdue, 1, #overdue, SPECULATIVE)
    end
    redis.call('ZREM', k.guesses, batch)
  end
  return #batches < limit
end

-- args: worker id, owner (incarnation, start time, worker id), resume ('1': only if no later start holds the
-- worker's place), nonce. Returns the slot, FENCED or FULL.
local function register(keys, args)
  local k = names(keys)
  local worker, owner, resume, nonce = args[1], args[2], args[3], args[4]
  local current = redis.call('HGET', k.workers, worker)
  if current then
    local record = redis.call('HGET', k.slots, current)
    local same = string.sub(record, 2, 9) == string.sub(owner, 1, 8)
    if resume == '1' and not same and string.sub(record, 10, 17) > string.sub(owner, 9, 16) then
      return FENCED
    end
    retire(k, current, nonce)
  end
  local slot = redis.call('SPOP', k.free)
  if not slot then
    slot = tonumber(redis.call('HGET', k.meta, 'next') or '0')
    if slot >= MAX_SLOTS then
      return FULL
    end
    redis.call('HSET', k.meta, 'next', slot + 1)
    slot = tostring(slot)
  end
  redis.call('HSET', k.slots, slot, 'L' .. owner)
  redis.call('HSET', k.workers, worker, slot)
  redis.call('ZADD', k.beats, now_ms(), slot)
  redis.call('HSET', k.points, VERSION, nonce)
  return tonumber(slot)
end

-- args: slot, owner, sequence number, counts of keys stored in tiers 0, 1, 2 and evicted, then the keys.
-- Sequence number 0 with no keys is a heartbeat. Returns the number of points that the slot holds, or FENCED.
local function publish(keys, args)
  local k = names(keys)
  local slot = args[1]
  if not owns(k, slot, args[2]) then
    return FENCED
  end
  redis.call('ZADD', k.beats, now_ms(), slot)
  local sequence = tonumber(args[3])
  local last = tonumber(redis.call('HGET', k.meta, 'seq:' .. slot) or '0')
  if sequence > last then
    redis.call('HSET', k.meta, 'seq:' .. slot, args[3])
    local first = 8
    for tier = 0, 2 do
      local count = tonumber(args[4 + tier])
      store(k, tonumber(slot), tier, args, first, count)
      first = first + count
    end
    local evicted = tonumber(args[7])
    withdraw(k, tonumber(slot), args, first, evicted)
    for start = first, first + evicted - 1, CHUNK do
      redis.call('SREM', k.reverse, unpack(args, start, math.min(start + CHUNK, first + evicted) - 1))
    end
  end
  return redis.call('SCARD', k.reverse)
end

-- args: slot, owner, nonce. The worker says goodbye. Returns 1, or FENCED.
local function release(keys, args)
  local k = names(keys)
  if not owns(k, args[1], args[2]) then
    return FENCED
  end
  retire(k, args[1], args[3])
  return 1
end

-- args: slot, points at most, milliseconds until the next slice of this shard may run (0: no matter).
-- Removes a slice of a retired slot's entries. Returns the number that are left, or BUSY.
local function clear(keys, args)
  local k = names(keys)
  local slot, interval = args[1], tonumber(args[3])
  if redis.call('SISMEMBER', k.dirty, slot) == 0 then
    return 0
  end
  local now = now_ms()
  if interval > 0 then
    if now < tonumber(redis.call('HGET', k.meta, 'clear_at') or '0') then
      return BUSY
    end
    redis.call('HSET', k.meta, 'clear_at', now + interval)
  end
  local slice = redis.call('SPOP', k.reverse, args[2])
  withdraw(k, tonumber(slot), slice, 1, #slice)
  local left = redis.call('SCARD', k.reverse)
  if left == 0 then
    redis.call('SREM', k.dirty, slot)
    redis.call('ZADD', k.cooling, now + COOLING_MS, slot)
  end
  return left
end

-- args: milliseconds after which a silent worker is dead, milliseconds until the next sweep of this shard, nonce.
-- Ends speculations, retires the dead, frees cooled slots. Returns the number of live workers, by which callers set
-- their pace, and some of the slots that want clearing, none when another sweep was just now.
local function sweep(keys, args)
  local k = names(keys)
  local now, dead_after = now_ms(), tonumber(args[1])
  local last = tonumber(redis.call('HGET', k.meta, 'swept_at') or '0')
  local num_live = redis.call('ZCARD', k.beats)
  if now < last + tonumber(args[2]) then
    return {num_live}
  end
  redis.call('HSET', k.meta, 'swept_at', now)
  local none_overdue = expire_guesses(k, now, 64)
  -- After a pause of the server, or of everybody, silence proves nothing.
  if now - last < dead_after / 2 then
    for _, slot in ipairs(redis.call('ZRANGEBYSCORE', k.beats, '-inf', now - dead_after, 'LIMIT', 0, 256)) do
      retire(k, slot, args[3])
    end
  end
  if none_overdue then
    for _, slot in ipairs(redis.call('ZRANGEBYSCORE', k.cooling, '-inf', now, 'LIMIT', 0, 256)) do
      redis.call('ZREM', k.cooling, slot)
      redis.call('HDEL', k.slots, slot)
      redis.call('SADD', k.free, slot)
      redis.call('HSET', k.points, VERSION, args[3])
    end
  end
  return {num_live, unpack(redis.call('SRANDMEMBER', k.dirty, 16))}
end

-- args: slot, owner, life in milliseconds, nonce, then the keys. Enters a worker, for a short life, at points
-- that it will soon hold. Returns the number of speculative entries, or FENCED.
local function speculate(keys, args)
  local k = names(keys)
  if not owns(k, args[1], args[2]) then
    return FENCED
  end
  local now, slot = now_ms(), tonumber(args[1])
  expire_guesses(k, now, 16)
  local ends = now + math.min(tonumber(args[3]), COOLING_MS / 2)
  local slot_bytes = string.char(math.floor(slot / 256), slot % 256)
  local bytes, total = encode(slot, SPECULATIVE), 0
  for start = 5, #args, CHUNK do
    local stop = math.min(start + CHUNK - 1, #args)
    local values = redis.call('HMGET', k.points, unpack(args, start, stop))
    local changes, untils, guessed = {}, {}, {}
    local num_changes, num_guessed = 0, 0
    for i = 1, stop - start + 1 do
      local value, key = values[i], args[start + i - 1]
      local place, held = nil, nil
      if value == bytes then
        held = SPECULATIVE
      elseif value then
        place, held = find(value, slot)
      end
      if not held then
        changes[num_changes + 1] = key
        changes[num_changes + 2] = value and splice(value, place, nil, bytes) or bytes
        num_changes = num_changes + 2
      end
      if not held or held == SPECULATIVE then
        num_guessed = num_guessed + 1
        guessed[num_guessed] = key
        untils[2 * num_guessed - 1] = slot_bytes .. key
        untils[2 * num_guessed] = ends
      end
    end
    if #changes > 0 then
      redis.call('HSET', k.points, unpack(changes))
    end
    if #guessed > 0 then
      redis.call('HSET', k.guess_until, unpack(untils))
      redis.call('ZADD', k.guesses, ends, slot_bytes .. args[4] .. table.concat(guessed))
      total = total + #guessed
    end
  end
  return total
end

-- Membership. keys: members, leases, version.

-- A version is an epoch, the same until the server loses everything, and a nonce.
local function renew_version(keys, nonce)
  local version = redis.call('GET', keys[3])
  redis.call('SET', keys[3], (version and string.sub(version, 1, 8) or nonce) .. nonce)
end

-- args: worker id, incarnation (8 bytes), lease in milliseconds, fresh ('1': take the place of any other
-- incarnation), nonce, payload. Returns 1, or FENCED when another incarnation holds the name.
local function join(keys, args)
  local record = redis.call('HGET', keys[1], args[1])
  if record and args[4] ~= '1' and string.sub(record, 1, 8) ~= args[2] then
    return FENCED
  end
  redis.call('ZADD', keys[2], now_ms() + tonumber(args[3]), args[1])
  local mine = args[2] .. args[6]
  if record ~= mine then
    redis.call('HSET', keys[1], args[1], mine)
    renew_version(keys, args[5])
  end
  return 1
end

-- args: worker id, incarnation, nonce.
local function leave(keys, args)
  local record = redis.call('HGET', keys[1], args[1])
  if not record or string.sub(record, 1, 8) ~= args[2] then
    return 0
  end
  redis.call('HDEL', keys[1], args[1])
  redis.call('ZREM', keys[2], args[1])
  renew_version(keys, args[3])
  return 1
end

-- args: version that the caller knows, nonce. Returns {version}, and when it is another than the caller's also
-- worker id, record (incarnation, payload), … An empty version: nobody has joined since the server was empty.
local function members(keys, args)
  local expired = redis.call('ZRANGEBYSCORE', keys[2], '-inf', now_ms(), 'LIMIT', 0, CHUNK)
  if #expired > 0 then
    redis.call('ZREM', keys[2], unpack(expired))
    redis.call('HDEL', keys[1], unpack(expired))
    renew_version(keys, args[2])
  end
  local version = redis.call('GET', keys[3]) or ''
  if version == args[1] then
    return {version}
  end
  local answer = redis.call('HGETALL', keys[1])
  table.insert(answer, 1, version)
  return answer
end

-- 'allow-oom': what frees memory, or keeps what is there, must work on a full server.
redis.register_function('slipstream_publish_v2', publish)
redis.register_function{function_name = 'slipstream_withdraw_v2', callback = publish, flags = {'allow-oom'}}
redis.register_function('slipstream_register_v2', register)
redis.register_function{function_name = 'slipstream_release_v2', callback = release, flags = {'allow-oom'}}
redis.register_function{function_name = 'slipstream_clear_v2', callback = clear, flags = {'allow-oom'}}
redis.register_function{function_name = 'slipstream_sweep_v2', callback = sweep, flags = {'allow-oom'}}
redis.register_function('slipstream_speculate_v2', speculate)
redis.register_function{function_name = 'slipstream_join_v2', callback = join, flags = {'allow-oom'}}
redis.register_function{function_name = 'slipstream_leave_v2', callback = leave, flags = {'allow-oom'}}
redis.register_function{function_name = 'slipstream_members_v2', callback = members, flags = {'allow-oom'}}
