"""From a checkpoint or folder to images, from images to scores."""
