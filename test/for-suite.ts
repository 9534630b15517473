import { afterAll, beforeAll } from 'vitest';

interface Closable {
  close?(): Promise<unknown> | unknown;
  remove?(): Promise<unknown>;
}

/**
 * Opens what the tests of a suite share before its first test, and closes it after the last one, by its method `close` or
 * `remove`, if it has one. Several calls open one after the other, and close in reverse order.
 *
 * @param open Returns a plain object.
 * @returns an object that gets the members of the opened one before the first test.
 */
export function forSuite<Opened extends object>(open: () => Promise<Opened>): Opened {
  const members = {} as Opened;
  let opened: Closable = {};
  beforeAll(async () => {
    const object = await open();
    opened = object;
    if (Object.getPrototypeOf(object) !== Object.prototype) throw new Error('forSuite copies only plain objects');
    Object.defineProperties(members, Object.getOwnPropertyDescriptors(object));
  });
  afterAll(async () => {
    await opened.close?.();
    await opened.remove?.();
  });
  return members;
}
