import { expect, it } from 'vitest';
import { freshStores } from '../../engines/stores.ts';

it('x', async () => {
  const s = await freshStores();
  expect(s.clickhouseUrl).toBeTruthy();
  await s.close();
});
