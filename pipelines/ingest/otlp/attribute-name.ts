import { type AttributeRole, findRole } from './attribute-roles.ts';

/** The name of an attribute and its role. */
export interface AttributeName {
  /** Latin-1, which is exact for every known name and differs if the bytes differ. */
  readonly text: string;
  readonly role: AttributeRole;
}

const slots = 4096;
const maxCachedBytes = 64;
/** Cache of recent names by hash: spans repeat a few dozen names, and other names only replace each other. */
const recent: Array<AttributeName | undefined> = new Array(slots).fill(undefined);

/** The name in `source[start, end)`; does not allocate a string if the name is cached. */
export function attributeName(source: Buffer, start: number, end: number): AttributeName {
  const length = end - start;
  if (length > maxCachedBytes) return internName(source, start, end);
  let hash = length;
  for (let index = start; index < end; index++) hash = (Math.imul(hash, 31) + source[index]!) | 0;
  const slot = (hash ^ (hash >>> 15)) & (slots - 1);
  const known = recent[slot];
  if (known !== undefined && isSame(known.text, source, start, length)) return known;
  const name = internName(source, start, end);
  recent[slot] = name;
  return name;
}

function internName(source: Buffer, start: number, end: number): AttributeName {
  const text = source.toString('latin1', start, end);
  return { text, role: findRole(text) };
}

function isSame(text: string, source: Buffer, start: number, length: number): boolean {
  if (text.length !== length) return false;
  for (let index = 0; index < length; index++) if (text.charCodeAt(index) !== source[start + index]) return false;
  return true;
}
