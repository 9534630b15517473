import avsc from 'avsc';
// The typings of `avsc` omit the reading position type, which skipping without decoding needs.
import avscInternals from 'avsc/lib/utils.js';
import { prefixBytes } from './wire-format.ts';

interface Tap {
  pos: number;
}
interface Skipping {
  _skip(tap: Tap): void;
}

/** Returns why a framed record does not match the schema, or undefined if it matches to its last byte. */
export type AvroWalk = (framed: Buffer) => string | undefined;

/**
 * Compiles `schema` into a walk over records that decodes nothing. ClickHouse silently accepts trailing bytes, wrong
 * union branches and short records, so the sink walks every record before it inserts it.
 */
export function compileAvroWalk(schema: string): AvroWalk {
  const type = avsc.Type.forSchema(JSON.parse(schema)) as unknown as Skipping;
  const { Tap } = avscInternals as unknown as { Tap: new (buffer: Buffer, position: number) => Tap };
  return (framed) => {
    const tap = new Tap(framed, prefixBytes);
    try {
      type._skip(tap);
    } catch {
      return 'a union branch or length is not one of the schema';
    }
    if (tap.pos === framed.length) return undefined;
    return tap.pos > framed.length ? 'the record ends early' : `${framed.length - tap.pos} bytes follow the record`;
  };
}
