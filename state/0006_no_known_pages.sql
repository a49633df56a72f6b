-- Pages are read whenever they come: to compare a scan costs little more than to recognize its pages did.

DROP TABLE known_pages;
