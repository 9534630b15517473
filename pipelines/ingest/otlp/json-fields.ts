/** A JSON object. */
export type JsonObject = Readonly<Record<string, unknown>>;

/**
 * Reads fields of OTLP/JSON messages. Names are in camelCase or as in the .proto file, null means absent, 64-bit
 * integers are strings or numbers, and ids are in hex. `reason` keeps the first error. Source: OTLP specification,
 * "JSON Protobuf Encoding".
 */
export class JsonFields {
  reason: string | undefined;

  reject(name: string, expected: string): undefined {
    this.reason ??= `${name} is not ${expected}`;
  }

  get(object: JsonObject, name: string, protoName = name): unknown {
    return object[name] ?? object[protoName] ?? undefined;
  }

  object(object: JsonObject, name: string, protoName = name): JsonObject | undefined {
    const value = this.get(object, name, protoName);
    if (value === undefined || isObject(value)) return value;
    return this.reject(name, 'an object');
  }

  list(object: JsonObject, name: string, protoName = name): readonly unknown[] {
    const value = this.get(object, name, protoName);
    if (Array.isArray(value)) return value;
    if (value !== undefined) this.reject(name, 'a list');
    return [];
  }

  text(object: JsonObject, name: string, protoName = name): string | undefined {
    const value = this.get(object, name, protoName);
    if (value === undefined || typeof value === 'string') return value;
    return this.reject(name, 'a string');
  }

  id(object: JsonObject, name: string, protoName: string): Buffer | undefined {
    const value = this.text(object, name, protoName);
    if (value === undefined || value === '') return undefined;
    if (value.length % 2 === 0 && /^[0-9a-f]+$/i.test(value)) return Buffer.from(value, 'hex');
    return this.reject(name, 'hex');
  }

  /** An integer of at most 32 bits; 0 if it is absent. */
  uint32(object: JsonObject, name: string, protoName = name): number {
    const value = this.get(object, name, protoName);
    if (value === undefined) return 0;
    if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 0xffff_ffff) return value;
    this.reject(name, 'a whole number');
    return 0;
  }

  integer(value: unknown, name: string, min: bigint, max: bigint): bigint | undefined {
    let integer = typeof value === 'bigint' ? value : undefined;
    if (typeof value === 'number' && Number.isInteger(value)) integer = BigInt(value);
    if (typeof value === 'string' && /^-?\d{1,20}$/.test(value)) integer = BigInt(value);
    if (integer !== undefined && integer >= min && integer <= max) return integer;
    return this.reject(name, 'a 64-bit integer');
  }
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
