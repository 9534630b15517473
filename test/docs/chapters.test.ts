/** The chapters of docs/guide run unchanged, in `make test` half of them; for quickstarts see `quickstarts.test.ts`. */
import { pickSome } from '../house/extent.ts';
import { describeGuidePage, guidePages } from './run-guide.ts';

const chapters = guidePages.filter((name) => !name.startsWith('quickstart-'));

for (const page of pickSome(chapters, 1 / 2)) describeGuidePage(page);
