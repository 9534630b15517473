import { pickSome } from '../house/extent.ts';
import { describeGuidePage, guidePages } from './run-guide.ts';

const quickstarts = guidePages.filter((name) => name.startsWith('quickstart-'));

for (const page of pickSome(quickstarts, 1 / 2)) describeGuidePage(page);
