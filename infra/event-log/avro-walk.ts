import avsc from 'avsc';
// `avsc` keeps its reading position type out of its typings; skipping without decoding needs it.
import avscInternals from 'avsc/lib/utils.js';
import { prefixBytes } from './wire-format.ts';

interface Tap {
  pos: number;
}
interface Skipping {
  _skip(tap: Tap): void;
}

/** Says why a framed record does not fit the schema, or nothing where it fits to its last byte. */
export type AvroWalk = (framed: Buffer) => string | undefined;

/**
 * Compiles `schema` into a walk over records that decodes nothing. ClickHouse takes trailing bytes, wrong union
 * branches and short records without a word, so every record is walked before it is sent.
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
