/** The release, as `package.json` says it; a test holds the two together. */
export const releaseVersion = '0.1.0';
